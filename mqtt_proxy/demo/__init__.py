"""`lmq demo`: a fleet of real sensors, a crash in the middle, and the account of every message."""
