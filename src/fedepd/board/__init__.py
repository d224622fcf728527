"""A folder of runs comes in; a live page on this machine comes out. It loads no training code."""
