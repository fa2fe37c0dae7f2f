package io.sparkevents.sidecar;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.UUID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A small file beside the spool with the number of records that a run lost and could not report, because its sidecar was
 * gone for good. The next run of the application reports them.
 */
final class UnreportedLosses {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path file;

  UnreportedLosses(Path folder, String application) {
    byte[] name = application.getBytes(StandardCharsets.UTF_8);
    file = folder.resolve("losses-" + UUID.nameUUIDFromBytes(name) + ".json");
  }

  /** Returns what an earlier run left, by kind of record, and removes the file. */
  Map<?, ?> take() {
    try {
      if (!Files.isRegularFile(file)) {
        return Collections.emptyMap();
      }
      Map<?, ?> lost = JSON.readValue(Files.readAllBytes(file), Map.class);
      Files.delete(file);
      return lost;
    } catch (IOException | RuntimeException unreadable) {
      LOG.warn("spark-events: cannot read {}, which says what an earlier run lost: {}", file, unreadable.toString());
      return Collections.emptyMap();
    }
  }

  /** Writes the file anew; removes it where there is nothing to say. */
  void save(Map<String, Long> lost) {
    try {
      if (lost.isEmpty()) {
        Files.deleteIfExists(file);
        return;
      }
      Files.createDirectories(file.getParent());
      Files.write(file, JSON.writeValueAsBytes(lost));
    } catch (IOException | RuntimeException unwritable) {
      LOG.warn("spark-events: cannot write {}; the next run will not report {}: {}", file, lost, unwritable.toString());
    }
  }
}
