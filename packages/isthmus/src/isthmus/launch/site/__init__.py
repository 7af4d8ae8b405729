"""A folder that ``isthmus run`` puts on PYTHONPATH, so that every Python process of the job finds sitecustomize."""
