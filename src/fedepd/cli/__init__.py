"""What people type comes in, text and exit codes go out. ``fedepd.cli:main`` is the command."""

from fedepd.cli.dispatch import main as main
