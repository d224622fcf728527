"""What a server may learn of its clients: sums instead of single vectors, and what attacks make of it."""
