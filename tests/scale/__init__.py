"""What one machine holds: each module is one claim, measured on a server process of its own. `python -m tests.scale --full`."""
