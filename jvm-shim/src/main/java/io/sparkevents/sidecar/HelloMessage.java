package io.sparkevents.sidecar;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.Record;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.Map;

/** First line to Python, in the sidecar process and in-process. */
public final class HelloMessage {
  private static final int PROTOCOL = 1;

  private HelloMessage() {}

  /**
   * Returns the hello message as one line of JSON.
   *
   * @param sequence number of the next event
   * @param restarts number of earlier sidecars of this application
   * @param before counters of the earlier sidecars' reporters
   */
  public static byte[] line(
      Settings settings, String application, long sequence, int restarts, Map<String, Map<String, Long>> before)
      throws IOException {
    return Record.json(
        json -> {
          json.writeStringField("kind", "hello");
          json.writeNumberField("protocol", PROTOCOL);
          json.writeStringField("application", application);
          json.writeNumberField("sequence", sequence);
          json.writeNumberField("restarts", restarts);
          json.writeNumberField("driver", process());
          json.writeObjectFieldStart("before");
          for (Map.Entry<String, Map<String, Long>> reporter : before.entrySet()) {
            json.writeObjectFieldStart(reporter.getKey());
            for (Map.Entry<String, Long> count : reporter.getValue().entrySet()) {
              json.writeNumberField(count.getKey(), count.getValue());
            }
            json.writeEndObject();
          }
          json.writeEndObject();
          json.writeArrayFieldStart("settings");
          for (Settings.Setting setting : settings.all()) {
            json.writeStartObject();
            json.writeStringField("key", setting.givenKey);
            json.writeStringField("value", setting.value);
            json.writeStringField("origin", setting.origin);
            json.writeEndObject();
          }
          json.writeEndArray();
        });
  }

  /** Returns the process ID of this JVM, or 0 if unknown; Java 8 has no public call for it. */
  private static long process() {
    try {
      return Long.parseLong(ManagementFactory.getRuntimeMXBean().getName().split("@")[0]);
    } catch (RuntimeException | LinkageError unknown) {
      return 0;
    }
  }
}
