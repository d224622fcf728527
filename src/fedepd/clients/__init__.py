"""A graph in, what each client holds out: partition, split, client files, a check-up of the data."""
