"""What is published: sdist, wheel, Maven artifacts, bill of materials and checksums, in dist/ (``make release``)."""
