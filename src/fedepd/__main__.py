"""``python -m fedepd`` is the ``fedepd`` command."""

import sys

from fedepd.cli import main

sys.exit(main())
