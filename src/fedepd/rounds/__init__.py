"""Clients and a method come in; training rounds come out.

Holds the only round loop and all server-side checks.
"""
