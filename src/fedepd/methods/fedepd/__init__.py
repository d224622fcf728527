"""FedEPD: a room of its own, because its parts are papers in themselves: purification, votes, structure."""
