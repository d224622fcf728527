"""What people type in, text and exit codes out. ``fedepd.cli:main`` is the command."""

from fedepd.cli.dispatch import main as main
