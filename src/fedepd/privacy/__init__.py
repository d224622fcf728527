"""What leaves a house, and what can be learned from it: vectors of numbers -> sums that hide them, runs -> an
audit.
"""
