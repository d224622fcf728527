"""Several runs that are made to be compared: methods over seeds, and a method over values of its settings."""
