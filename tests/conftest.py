"""No test reads or writes the user's cache."""

import os

os.environ["FEDEPD_CACHE"] = "off"
