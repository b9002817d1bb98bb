"""Shows, over the wire, that the server keeps each normative statement of MQTT 3.1.1 and 5.0 (docs/conformance.md)."""
