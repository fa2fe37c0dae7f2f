"""Published files in dist/: sdist, wheel, Maven artifacts, bill of materials and checksums (``make release``)."""
