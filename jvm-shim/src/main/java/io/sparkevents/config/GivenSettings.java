package io.sparkevents.config;

import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/**
 * The {@code events.*} settings as the user wrote them, in spark-defaults.conf, Spark's configuration and {@code
 * spark_events.start}.
 *
 * <p>spark-submit ignores lines of spark-defaults.conf that do not begin with {@code spark.}, so this class reads the
 * file again.
 *
 * <p>References, <code>${env:NAME}</code> and <code>${file:/path}</code>, are resolved by the sidecar's rules ({@code
 * config/references.py}). A resolved value never appears in messages.
 */
public final class GivenSettings {
  /** One setting as the user wrote it. */
  public static final class Setting {
    public final String key;
    public final String value;
    public final String origin;

    Setting(String key, String value, String origin) {
      this.key = key;
      this.value = value;
      this.origin = origin;
    }
  }

  private static final String SPARK = "spark.";
  private static final Pattern DURATION = Pattern.compile("(\\d{1,9})\\s*(?:(ms)|(s)|(m|min)|(h)|(d))");
  /** Milliseconds of each unit, in the order of the groups in the pattern. */
  private static final long[] UNITS = {1, 1_000, 60_000, 3_600_000, 86_400_000};
  private static final Pattern REFERENCE = Pattern.compile("\\$\\{(env|file):([^}]*)\\}");

  private final Map<String, Setting> settings = new TreeMap<>();
  private final Map<String, String> environment;
  /** Reason why the settings cannot be read, or null. */
  public final String problem;

  GivenSettings(SparkConf conf, Map<String, String> environment, Map<String, String> overrides) {
    this.environment = environment;
    problem = readDefaults();
    for (Tuple2<String, String> entry : conf.getAll()) {
      if (entry._1().startsWith(SPARK + "events.")) {
        put(entry._1(), entry._2(), "Spark's configuration");
      }
    }
    overrides.forEach((key, value) -> put(key, value, "spark_events.start"));
  }

  /** Reads spark-defaults.conf if the file exists; returns the reason if it cannot be read, or null. */
  private String readDefaults() {
    String home = variable("SPARK_HOME");
    String folder = variable("SPARK_CONF_DIR") == null && home != null ? home + "/conf" : variable("SPARK_CONF_DIR");
    Path defaults = folder == null ? null : Paths.get(folder, "spark-defaults.conf");
    if (defaults == null || !Files.isRegularFile(defaults)) {
      return null;
    }
    Properties file = new Properties();
    try (Reader reader = new InputStreamReader(Files.newInputStream(defaults), StandardCharsets.UTF_8)) {
      file.load(reader);
    } catch (IOException | IllegalArgumentException unreadable) {
      return "cannot read " + defaults + ": " + unreadable.getMessage();
    }
    for (String key : file.stringPropertyNames()) {
      if (key.startsWith("events.")) {
        put(key, file.getProperty(key), defaults.toString());
      }
    }
    return null;
  }

  /** Returns an environment variable; null if it is missing or empty. */
  private String variable(String name) {
    String value = environment.get(name);
    return value == null || value.isEmpty() ? null : value;
  }

  private void put(String givenKey, String value, String origin) {
    String key = givenKey.startsWith(SPARK) ? givenKey.substring(SPARK.length()) : givenKey;
    settings.put(key, new Setting(givenKey, value.trim(), origin));
  }

  public Collection<Setting> all() {
    return settings.values();
  }

  Set<String> keys() {
    return settings.keySet();
  }

  boolean contains(String key) {
    return settings.containsKey(key);
  }

  /** Returns a value for use in messages, with unresolved references. */
  public String asWritten(String key) {
    return settings.get(key).value;
  }

  /** Returns whether a setting is on. Also true if the shim cannot decide. */
  public boolean isOn(String key) {
    return settings.containsKey(key) && !"false".equalsIgnoreCase(text(key, ""));
  }

  /** Returns the value with its references resolved; {@code otherwise} if the value is missing or a reference fails. */
  String text(String key, String otherwise) {
    if (!settings.containsKey(key)) {
      return otherwise;
    }
    Matcher reference = REFERENCE.matcher(settings.get(key).value);
    StringBuffer resolved = new StringBuffer();
    while (reference.find()) {
      String name = reference.group(2);
      String target = reference.group(1).equals("env") ? environment.get(name) : content(name);
      if (target == null) {
        return otherwise;
      }
      reference.appendReplacement(resolved, Matcher.quoteReplacement(target));
    }
    return reference.appendTail(resolved).toString();
  }

  /** Returns the file's content without its last line break, or null. */
  private static String content(String name) {
    try {
      Path path = Paths.get(name);
      // Leave a pipe to the sidecar, because it can be read only once and might block forever.
      if (!Files.isRegularFile(path)) {
        return null;
      }
      // A new decoder raises an error if the content is not UTF-8.
      String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(Files.readAllBytes(path))).toString();
      return text.replaceFirst("(\r\n|\r|\n)\\z", "");
    } catch (IOException | RuntimeException | Error unreadable) {
      return null;
    }
  }

  int number(String key, int otherwise) {
    try {
      return Integer.parseInt(text(key, ""));
    } catch (NumberFormatException notGivenOrWrong) {
      return otherwise;
    }
  }

  long millis(String key, long otherwise) {
    Matcher duration = DURATION.matcher(text(key, ""));
    if (!duration.matches()) {
      return otherwise;
    }
    int unit = 0;
    while (duration.group(2 + unit) == null) {
      unit++;
    }
    return Long.parseLong(duration.group(1)) * UNITS[unit];
  }
}
