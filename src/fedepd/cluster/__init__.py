"""Jobs on several machines, by Dask. An optional extra."""
