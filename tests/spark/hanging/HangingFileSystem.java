import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Local file system with the scheme {@code hang}, which blocks while the file in {@code hang.switch} exists. */
public final class HangingFileSystem extends RawLocalFileSystem {
  @Override
  public URI getUri() {
    return URI.create("hang:///");
  }

  @Override
  public String getScheme() {
    return "hang";
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    block("list-" + path.getName());
    return super.listStatus(path);
  }

  @Override
  public FSDataOutputStream create(
      Path path, boolean overwrite, int buffer, short replication, long block, Progressable progress)
      throws IOException {
    block("create-" + path.getParent().getName());
    return super.create(path, overwrite, buffer, replication, block, progress);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int buffer,
      short replication,
      long block,
      Progressable progress)
      throws IOException {
    block("create-" + path.getParent().getName());
    return super.create(path, permission, overwrite, buffer, replication, block, progress);
  }

  private static void block(String what) throws IOException {
    File flag = new File(System.getProperty("hang.folder"), "hang-" + what);
    try {
      while (flag.exists()) {
        Thread.sleep(20);
      }
    } catch (InterruptedException stopped) {
      throw new FileNotFoundException("interrupted");
    }
  }
}
