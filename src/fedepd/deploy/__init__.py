"""A real federation: every owner's graph stays at its site, NVFlare carries the messages, the round loop is the simulator's."""
