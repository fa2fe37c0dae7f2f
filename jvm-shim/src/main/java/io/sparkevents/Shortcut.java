package io.sparkevents;

import java.io.IOException;

/** The way into the sidecar's pipe past the writer, for a thread that will wait for the answer anyway. */
interface Shortcut {
  /** What an empty pipe always takes at once: a page, the least that any has on Linux; and it takes it whole. */
  int MOST_BYTES = 4096;

  /** Writes and flushes a line of at most {@link #MOST_BYTES}; nobody else writes meanwhile, and the pipe is empty. */
  void write(byte[] line) throws IOException;
}
