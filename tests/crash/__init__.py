"""kill -9 at random moments under load, and the account afterwards: `python -m tests.crash --rounds 25`."""
