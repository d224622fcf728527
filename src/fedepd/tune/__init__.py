"""Methods and graphs -> the best settings of each method, by validation alone, with equal effort for all."""
