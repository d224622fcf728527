"""What things cost on this machine: seconds and bytes per round, against a plain implementation in the same run."""
