package io.sparkevents.config;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What a value stands for, by <code>${env:NAME}</code> and <code>${file:/path}</code>: as the sidecar reads it, in {@code
 * config/references.py}. It is never shown.
 */
final class SecretResolver {
  private static final Pattern REFERENCE = Pattern.compile("\\$\\{(env|file):([^}]*)\\}");

  private SecretResolver() {}

  /** The value with every reference replaced, or null where one of them cannot be: the sidecar says why. */
  static String resolve(String value, Map<String, String> environment) {
    Matcher reference = REFERENCE.matcher(value);
    StringBuffer resolved = new StringBuffer();
    while (reference.find()) {
      String name = reference.group(2);
      String target = reference.group(1).equals("env") ? environment.get(name) : content(name);
      if (target == null) {
        return null;
      }
      reference.appendReplacement(resolved, Matcher.quoteReplacement(target));
    }
    return reference.appendTail(resolved).toString();
  }

  /** Of a file, without its last line break. */
  private static String content(String name) {
    try {
      Path path = Paths.get(name);
      if (!Files.isRegularFile(path)) {
        // A pipe can be read only once, and that is for the sidecar; it might also be waited for without end.
        return null;
      }
      ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(path));
      String text = StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
      String lines = text.replace("\r\n", "\n").replace('\r', '\n');
      return lines.endsWith("\n") ? lines.substring(0, lines.length() - 1) : lines;
    } catch (IOException | RuntimeException | Error unreadable) {
      return null;
    }
  }
}
