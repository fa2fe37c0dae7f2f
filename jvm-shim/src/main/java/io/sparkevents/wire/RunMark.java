package io.sparkevents.wire;

import io.sparkevents.queue.Record;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Mark of this run in the spool directory. The sidecar places it, and deletes it when it has received the run's end.
 *
 * <p>If the mark is still there at the end, no sidecar has received the end. The next run would then report this run as
 * lost, so this class stores the end beside the mark.
 */
public final class RunMark {
  private static final Logger LOG = LoggerFactory.getLogger(RunMark.class);

  private volatile Path folder;

  /** Notes the folder of the mark. */
  void placed(String path) {
    folder = Paths.get(path);
  }

  /** Stores the end of the application if the mark is still there. Call this method after the last sidecar. */
  public void leave(Record end) {
    Path mark = folder;
    try {
      if (mark != null && Files.exists(mark.resolve("start.json"))) {
        Path written = Files.write(mark.resolve("end.json.new"), end.line());
        Files.move(written, mark.resolve("end.json"), StandardCopyOption.ATOMIC_MOVE);
      }
    } catch (Throwable failed) {
      LOG.warn("[spark-events] cannot write to {}, so the next run reports this run as LOST: {}", mark, failed.toString());
    }
  }
}
