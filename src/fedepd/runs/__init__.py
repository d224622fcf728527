"""Settings and data in, a run folder out: one run, many runs, runs that go on."""
