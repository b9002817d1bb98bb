"""What `lmq` can do: one module for each command, imported only when it is called."""
