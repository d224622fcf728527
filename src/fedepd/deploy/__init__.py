"""A task, kits and each site's own graph come in; training over NVFlare; a run folder goes out."""
