"""What every storage engine is asked for: the model, the errors and the ports. Pure; no I/O."""
