package launch

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// Control is how other processes of this user find the launcher of a file, and what they can ask of it. In the runtime
// folder there are two files, named by a hash of the path of the file:
//
//	launch-HASH.lock  locked while the launcher runs, whatever it ends by; its content is the launcher's process id
//	launch-HASH.sock  a socket: a line "status" or "stop" is answered with a Status as JSON, after a stop once all
//	                  daemons have ended
type Control struct {
	lock   *os.File       // its flock makes this process the only launcher; the kernel ends it with the process
	socket net.Listener   // open since Hold; callers wait in it until Serve
	serve  sync.WaitGroup // of the goroutines of Serve
	ended  chan struct{}  // closed by Close
	status func() Status  // set by Serve
}

// RuntimeFolder returns the folder that is taken unless another one is given.
func RuntimeFolder() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("ringlog-%d", os.Getuid()))
}

// place returns the path of the files about a file, without their endings.
func place(dir, file string) (string, error) {
	// Links are followed, so that a file has one launcher by whatever name it is given.
	abs, err := filepath.Abs(file)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	// The name is short: the path of a socket has at most about a hundred bytes.
	hash := sha256.Sum256([]byte(abs))
	return filepath.Join(dir, fmt.Sprintf("launch-%x", hash[:8])), err
}

// Hold makes this process the launcher of a file. The error of a second one names the first.
func Hold(dir, file string) (*Control, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	base, err := place(dir, file)
	if err != nil {
		return nil, err
	}
	// The content is kept until the lock is held: it is the process id of a launcher that runs. O_NOFOLLOW refuses
	// a link that somebody else has placed.
	lock, err := os.OpenFile(base+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	c := &Control{lock: lock, ended: make(chan struct{})}
	// Waiting for the lock would be waiting for the end of the other launcher.
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		pid, _ := io.ReadAll(io.LimitReader(lock, 16)) // which the first one may not have written yet
		err = shell.RefusedError{Err: fmt.Errorf("launch: the process %s runs %s already (to end it: ringlog launch %s "+
			"--stop)", pid, file, file)}
	}
	if err == nil {
		err = c.listen(base)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c, nil
}

// makeFolder makes the runtime folder, which must be this user's alone: others must not stop the daemons.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("launch: the runtime folder: %w (to use another one: --run-dir)", err)
	}
	// It may have been there before. Lstat does not follow a link, which could lead to a folder of somebody else.
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("launch: the runtime folder: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(stat.Uid) != os.Getuid() {
		return shell.Usagef("the runtime folder %s is not a folder of this user alone: chmod 700 it, or use another "+
			"one with --run-dir", dir)
	}
	return nil
}

// listen writes the process id and opens the socket. The lock is held, so a socket that is there is a dead process's.
func (c *Control) listen(base string) error {
	// A longer process id may be left of the launcher before.
	err := c.lock.Truncate(0)
	if err == nil {
		_, err = fmt.Fprint(c.lock, os.Getpid())
	}
	if err == nil {
		err = os.Remove(base + ".sock")
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("launch: %w", err)
	}
	c.socket, err = net.Listen("unix", base+".sock")
	if err != nil {
		return fmt.Errorf("launch: %w (a shorter --run-dir may help)", err)
	}
	// The folder keeps others out already. The mode holds where the folder's is changed later.
	return os.Chmod(base+".sock", 0o600)
}

// askWithin bounds what a caller may take to send its line and to read the answer.
const askWithin = 5 * time.Second

// Serve answers callers until Close.
func (c *Control) Serve(l *Launcher) {
	c.status = l.Status
	c.serve.Go(func() {
		for {
			// Only Close ends the socket, so an error is the end.
			conn, err := c.socket.Accept()
			if err != nil {
				return
			}
			c.serve.Go(func() {
				defer conn.Close()
				// A caller that sends nothing, or too much, must not hold up Close.
				_ = conn.SetDeadline(time.Now().Add(askWithin))
				asked, _ := bufio.NewReader(io.LimitReader(conn, 16)).ReadString('\n')
				switch asked {
				case "stop\n":
					// The answer is sent once Close has released the lock, so that the caller can start a launcher
					// at once.
					l.Stop()
					<-c.ended
				case "status\n":
				default:
					return
				}
				// The first deadline may be over: a stop takes as long as the daemons need.
				_ = conn.SetDeadline(time.Now().Add(askWithin))
				_ = json.NewEncoder(conn).Encode(c.status())
			})
		}
	})
}

// Close has the next launcher of the file start, and then answers who waits for the end of this one.
func (c *Control) Close() error {
	// First the lock, then the answers: who is answered may hold the file. Wait returns once all are sent.
	err := errors.Join(c.socket.Close(), c.lock.Close())
	close(c.ended)
	c.serve.Wait()
	return err
}

// maxStatus bounds the answer of a launcher.
const maxStatus = 16 << 20

// Ask asks the launcher of a file for its status, or with stop to end, and waits for that.
func Ask(ctx context.Context, dir, file string, stop bool) (s Status, err error) {
	base, err := place(dir, file)
	if err != nil {
		return s, shell.NotFoundf("launch: %w", err)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", base+".sock")
	// A socket without a process is left by a launcher that was killed.
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return s, shell.NotFoundf("launch: no launcher of %s runs here (to start it: ringlog launch %s; one that uses "+
			"another runtime folder than %s needs --run-dir)", file, file, dir)
	}
	if err != nil {
		return s, fmt.Errorf("launch: %w", err)
	}
	defer conn.Close()
	// The end of ctx ends a write or read that is under way.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	// A stop takes as long as the daemons need, so its answer has no deadline.
	line := "status\n"
	if stop {
		line = "stop\n"
	} else {
		_ = conn.SetDeadline(time.Now().Add(askWithin))
	}
	if _, err := io.WriteString(conn, line); err != nil {
		return s, fmt.Errorf("launch: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxStatus)).Decode(&s); err != nil {
		return s, fmt.Errorf("launch: the launcher of %s has not answered: %w", file, err)
	}
	return s, nil
}
