"""MQTT 3.1, 3.1.1 and 5.0 control packets: bytes to objects and back. Pure; knows no socket and no session."""
