"""Build the published files in dist/: sdist, wheel, Maven artifacts, SBOM and checksums (``make release``)."""
