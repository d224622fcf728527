"""No test reads or writes the user's cache; one thread, as in a run: more would change bits and slow small tests down."""

import os

os.environ["FEDEPD_CACHE"] = "off"
os.environ["OMP_NUM_THREADS"] = "1"
