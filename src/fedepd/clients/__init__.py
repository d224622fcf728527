"""A ``Graph`` comes in, one ``ClientData`` per client goes out: partition, split, files, data checks."""
