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
 * Resolves <code>${env:NAME}</code> and <code>${file:/path}</code> in a value by the sidecar's rules ({@code
 * config/references.py}). A resolved value never appears in messages.
 */
final class SecretResolver {
  private static final Pattern REFERENCE = Pattern.compile("\\$\\{(env|file):([^}]*)\\}");

  private SecretResolver() {}

  /** Returns the value with every reference replaced; null if one cannot be resolved, which the sidecar reports. */
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

  /** Returns the file's text without its last line break, or null. */
  private static String content(String name) {
    try {
      Path path = Paths.get(name);
      if (!Files.isRegularFile(path)) {
        // A pipe can be read only once, by the sidecar, and reading it might block forever.
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
