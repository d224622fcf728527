"""Clients and a method in, rounds out: the only loop, what the server accepts, and its defences."""
