"""What a cluster without a network needs: packing, splitting, verifying, unpacking, environments and model folders.

``bundle.py``, ``unbundle.py`` and ``environment.py`` need Python alone, so that they run before anything is installed.
"""
