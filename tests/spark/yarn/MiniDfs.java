import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * HDFS with one name node and one data node, until standard input ends.
 *
 * <p>Argument: a folder for the blocks. Prints the address of WebHDFS.
 */
public final class MiniDfs {
  private MiniDfs() {}

  public static void main(String[] arguments) throws Exception {
    Configuration conf = new Configuration();
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
    conf.setInt("dfs.ls.limit", 20);
    try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).build()) {
      cluster.waitActive();
      System.out.println("webhdfs://" + cluster.getNameNode().getHttpAddress().getHostName() + ":"
          + cluster.getNameNode().getHttpAddress().getPort());
      System.in.read();
    }
    System.exit(0);
  }
}
