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
 * Small file in the spool's folder with the number of records that a run lost and could not report because no sidecar
 * was left. The next run of the application reports them.
 */
final class UnreportedLosses {
  private static final Logger LOG = LoggerFactory.getLogger(Sidecar.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Path file;

  UnreportedLosses(Path folder, String application) {
    byte[] name = application.getBytes(StandardCharsets.UTF_8);
    file = folder.resolve("losses-" + UUID.nameUUIDFromBytes(name) + ".json");
  }

  /** Returns the losses of an earlier run by kind of record, and removes the file. */
  Map<?, ?> take() {
    try {
      if (!Files.isRegularFile(file)) {
        return Collections.emptyMap();
      }
      Map<?, ?> lost = JSON.readValue(Files.readAllBytes(file), Map.class);
      Files.delete(file);
      return lost;
    } catch (IOException | RuntimeException unreadable) {
      LOG.warn(
          "spark-events: cannot read {}, so the losses of an earlier run are not reported; check its permissions: {}",
          file,
          unreadable.toString());
      return Collections.emptyMap();
    }
  }

  /** Replaces the file; removes it if there are no losses. */
  void save(Map<String, Long> lost) {
    try {
      if (lost.isEmpty()) {
        Files.deleteIfExists(file);
        return;
      }
      Files.createDirectories(file.getParent());
      Files.write(file, JSON.writeValueAsBytes(lost));
    } catch (IOException | RuntimeException unwritable) {
      LOG.warn(
          "spark-events: cannot write {}, so the next run will not report these lost records: {}; check the permissions"
              + " and free space of its folder: {}",
          file,
          lost,
          unwritable.toString());
    }
  }
}
