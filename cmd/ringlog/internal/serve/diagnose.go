package serve

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Each method of diagnosis is one check of ringlog doctor. It adds a finding for each problem with its remedy, or
// one that says that all is well. A check that cannot be made is a problem, too.

// Bounds are what Diagnose calls a problem.
type Bounds struct {
	Sync time.Duration // that a write of 4 KiB may take to reach the disk, as the median of some
}

// What a node needs at least, whatever it serves.
const (
	leastFiles = 4096                // open files: each client has a connection, and Pebble has its tables
	leastToken = 16                  // characters of the cluster token
	renewEarly = 30 * 24 * time.Hour // before a certificate expires
)

// Diagnose checks this machine for the node that the configuration describes, whether the node runs or not. It changes
// nothing but a file that it makes and removes. endpoint is where the node answers, "" if the configuration has none.
func Diagnose(c *cli.Context, sh *shell.Shell, bounds Bounds) (findings []shell.Finding, endpoint string) {
	cfg, err := serveConfigOf(c, sh)
	// Nothing else can be checked without knowing what the node is.
	if err != nil {
		return []shell.Finding{{Check: "configuration", Found: err.Error(),
			Remedy: "correct it; ringlog serve --print-config checks it again"}}, ""
	}
	d := &diagnosis{cfg: cfg, sh: sh, bounds: bounds}
	// listenAddresses finds out whether the node runs, which folder needs to know.
	d.configuration()
	d.listenAddresses(c.Context)
	d.folder()
	d.disk()
	d.certificates()
	d.tokenFile()
	d.openFiles()
	// This is how the node advertises itself: with TLS required it answers nothing else.
	scheme := "http://"
	if cfg.mode() == certs.Require {
		scheme = "https://"
	}
	return d.findings, scheme + cmp.Or(cfg.AdvertiseHTTP, cfg.HTTP)
}

// diagnosis gathers the findings about one node.
type diagnosis struct {
	cfg      serveConfig // validated
	sh       *shell.Shell
	bounds   Bounds
	running  bool            // the node itself holds its ports
	findings []shell.Finding // in the order of the checks
}

// good reports what was checked and found to be well.
func (d *diagnosis) good(check, format string, args ...any) {
	d.findings = append(d.findings, shell.Finding{Check: check, OK: true, Found: fmt.Sprintf(format, args...)})
}

// bad reports a problem with its remedy.
func (d *diagnosis) bad(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, shell.Finding{Check: check, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

// configuration finds what a node accepts and an operator hardly wants.
func (d *diagnosis) configuration() {
	const check = "configuration"
	before := len(d.findings)
	// Each finding has a remedy of its own. If there is none, one line says which node was checked.
	cfg := &d.cfg
	// How the cluster is formed.
	if n := cfg.BootstrapExpect; n > 0 && n%2 == 0 {
		d.bad(check, "use an odd number of voters", "bootstrap-expect is %d: %d voters survive no more failures than %d", n,
			n, n-1)
	}
	if len(cfg.Join) > 0 && len(cfg.Join) < cfg.BootstrapExpect-1 {
		d.bad(check, "name all other voters in join", "join has %s, and %d other voters are expected",
			shell.Count(len(cfg.Join), "URL"), cfg.BootstrapExpect-1)
	}
	// Who may reach the node, and read what it sends.
	if cfg.Insecure && d.sh.Token == "" {
		d.bad(check, "set token-file on all nodes, and remove insecure",
			"insecure is set, and there is no token: whoever reaches the ports may do everything")
	}
	if cfg.mode() == certs.Allow {
		d.bad(check, "set tls-mode to require once all clients use TLS", "tls-mode is allow: plain connections are taken, too")
	}
	// What was set to look for something, and costs as long as it is set.
	if cfg.CPUProfile != "" {
		d.bad(check, "remove cpu-profile when you have measured", "cpu-profile is set: the node writes a profile all its life")
	}
	if slices.Contains([]string{"trace", "debug"}, cfg.LogLevel) {
		d.bad(check, "set log-level to info", "log-level is %s, which writes many lines for each request", cfg.LogLevel)
	}
	if len(d.findings) == before {
		d.good(check, "node %s, data in %s", cfg.ID, cfg.DataDir)
	}
}

// listenAddresses finds ports that the node cannot listen on, and names that are not known here.
func (d *diagnosis) listenAddresses(ctx context.Context) {
	d.running = d.answersItself(ctx)
	// Whether a port can be listened on is found by listening on it.
	for _, a := range []struct{ check, addr string }{{"http port", d.cfg.HTTP}, {"raft port", d.cfg.Raft}} {
		listener, err := net.Listen("tcp", a.addr)
		switch {
		case err == nil:
			_ = listener.Close() // nobody has connected to it
			if d.running {
				d.bad(a.check, "restart the node, so that it listens where the configuration says",
					"the node runs, but nothing listens at %s", a.addr)
				continue
			}
			// The node does not run, and can listen here once it does.
			d.good(a.check, "%s is free", a.addr)
		case errors.Is(err, syscall.EADDRINUSE) && d.running:
			d.good(a.check, "%s is held%s", a.addr, cmp.Or(shell.PortHolder(a.addr), " by the node"))
		case errors.Is(err, syscall.EADDRINUSE):
			d.bad(a.check, "stop that process, or choose another port", "%s is in use%s", a.addr, shell.PortHolder(a.addr))
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			d.bad(a.check, "use an address of this machine: ip address lists them", "%s is no address of this machine", a.addr)
		case errors.Is(err, syscall.EACCES):
			d.bad(a.check, "choose a port above 1023", "this user may not listen at %s", a.addr)
		default:
			d.bad(a.check, "correct the address", "%v", err)
		}
	}
	// Names are looked up as the node does when it dials.
	for _, url := range append([]string{d.cfg.AdvertiseHTTP, d.cfg.AdvertiseRaft}, d.cfg.Join...) {
		host := hostOfURL(url)
		if host == "" || net.ParseIP(host) != nil {
			continue
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
			d.bad("names", "correct the name, or add it to DNS or /etc/hosts", "%s is not known on this machine: %v", host, err)
		}
	}
}

// answersItself reports whether the node of this configuration answers at its address. Another node, or another
// program, at the address is not the node.
func (d *diagnosis) answersItself(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	scheme := "http://"
	if d.cfg.mode() == certs.Require {
		scheme = "https://"
	}
	// The id decides: something else may answer at the address.
	var status api.Status
	return d.sh.Ask(ctx, scheme+cmp.Or(d.cfg.AdvertiseHTTP, d.cfg.HTTP), "/status", &status) == nil &&
		status.NodeID == d.cfg.ID
}

// hostOfURL returns the host of a URL, or of an address without a scheme; "" if there is none.
func hostOfURL(url string) string {
	_, addr, found := strings.Cut(url, "://")
	if !found {
		addr = url
	}
	addr, _, _ = strings.Cut(addr, "/")
	// An address without a port is a host alone.
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// folder finds a data folder that is of another node, damaged, or open to others.
func (d *diagnosis) folder() {
	const check = "data folder"
	dir := d.cfg.DataDir
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		d.good(check, "%s does not exist yet", dir)
		return
	}
	if err != nil {
		d.bad(check, "let the user of the node read and enter the folders above", "%v", err)
		return
	}
	// The folder's own mode keeps others out, whatever the modes of the files in it are.
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		d.bad(check, "chmod 700 "+dir, "others can enter %s (mode %04o): all events are in it", dir, mode)
	}
	marker, err := datadir.Inspect(dir)
	// A node that runs holds the lock of its folder, so that the marker cannot be read. ErrNoFolder is a folder
	// without a marker and without a node's data.
	switch {
	case errors.Is(err, datadir.ErrInUse) && d.running, errors.Is(err, datadir.ErrNoFolder):
		d.good(check, "%s", dir)
	case errors.Is(err, datadir.ErrInUse):
		d.bad(check, "stop that process, or use another folder", "%v", err)
	case err != nil:
		d.bad(check, "see docs/operations.md: empty the folder and let the node join again, or restore a backup",
			"%v", offline.Explain(err))
	case marker.NodeID != d.cfg.ID:
		d.bad(check, "set id to "+marker.NodeID+", or use a folder of this node's own", "%s is of node %s, and id is %s", dir,
			marker.NodeID, d.cfg.ID)
	default:
		d.good(check, "%s of node %s", dir, marker.NodeID)
	}
}

// existing returns the folder, or the nearest folder above it that exists.
func existing(dir string) string {
	// The root exists, and is its own parent.
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir
		}
		dir = parent
	}
}

// syncsMeasured is how many writes the median is of.
const syncsMeasured = 15

// disk measures the volume of the data folder: what it keeps, how much room it has, and how fast it is.
func (d *diagnosis) disk() {
	// The node makes its folder on the volume of the nearest one that there is.
	dir := existing(d.cfg.DataDir)
	volume, err := volumeOf(dir)
	if err != nil {
		d.bad("disk space", "let the user of the node read the folder", "%v", err)
		return
	}
	if volume.volatile != "" {
		d.bad("file system", "use a disk of this machine: ext4 or xfs", "%s is on %s, which does not keep what is synced", dir,
			volume.volatile)
	}
	// The bound below which the node refuses appends, and as much again as a margin to act in.
	least := uint64(d.cfg.DiskMinFree)
	// As raftnode computes it from the size of the volume.
	if least == 0 {
		least = min(max(volume.size/20, 64<<20), 1<<30)
	}
	space := fmt.Sprintf("%s of %s free", shell.Size(volume.free), shell.Size(volume.size))
	if volume.free < 2*least {
		d.bad("disk space", "free space, or enlarge the volume; docs/capacity.md computes what a cluster needs",
			"%s, and below %s the node refuses appends", space, shell.Size(least))
	} else {
		d.good("disk space", "%s", space)
	}
	// It writes into the folder in which the node writes, so that it measures the same disk.
	took, err := syncTime(dir)
	switch {
	case err != nil:
		d.bad("disk speed", "let the user of the node write to the folder", "%v", err)
	case took > d.bounds.Sync:
		d.bad("disk speed", "use a disk of this machine with a write cache that outlasts a loss of power",
			"a synced write takes %s, the limit is %s: each publish waits for one on a majority", shell.Short(took),
			shell.Short(d.bounds.Sync))
	default:
		d.good("disk speed", "a synced write takes %s", shell.Short(took))
	}
}

// syncTime measures how long it takes until 4 KiB are on the disk, as raft's log is written.
func syncTime(dir string) (_ time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".ringlog-doctor-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	block, took := make([]byte, 4096), make([]time.Duration, syncsMeasured)
	for i := range took {
		// Each write extends the file, so a sync also has to write the new size.
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	// The median: a single slow write, or a fast one, is no measure.
	slices.Sort(took)
	return took[len(took)/2], nil
}

// certificates finds certificates that do not fit, expire soon or name other hosts.
func (d *diagnosis) certificates() {
	const check = "certificate"
	if d.cfg.mode() == certs.Off {
		return
	}
	files := certs.Files{Cert: d.cfg.TLSCert, Key: d.cfg.TLSKey, CA: d.cfg.TLSCA}
	// Open checks all that the node checks at its start: that the key fits, and that the CA has signed it for this
	// node.
	store, err := certs.Open(files, certs.ForNode(d.cfg.ID))
	if err != nil {
		d.bad(check, "make one with ringlog cert node "+d.cfg.ID, "%v", err)
		return
	}
	left := time.Until(store.State().Until)
	if left < renewEarly {
		d.bad(check, "make a new one with ringlog cert node "+d.cfg.ID+"; the node reads it by itself",
			"%s, or its CA, expires in %s", files.Cert, shell.Short(left))
	}
	// Others check the name in the address that they dial, which is the advertised one.
	for _, addr := range []string{cmp.Or(d.cfg.AdvertiseHTTP, d.cfg.HTTP), cmp.Or(d.cfg.AdvertiseRaft, d.cfg.Raft)} {
		host := hostOfURL(addr)
		if err := namesHost(files.Cert, host); err != nil {
			d.bad(check, fmt.Sprintf("make one with ringlog cert node %s --host %s", d.cfg.ID, host), "%s: %v", files.Cert, err)
			break
		}
	}
	if !slices.ContainsFunc(d.findings, func(f shell.Finding) bool { return f.Check == check }) {
		d.good(check, "%s is valid for %s", files.Cert, shell.Short(left))
	}
}

// namesHost returns an error if the first certificate of a file is not of a host.
func namesHost(file, host string) error {
	// The first certificate is the node's own; those that follow lead from it to the CA.
	raw, err := certs.ReadFile(file)
	if err != nil {
		return err
	}
	var chain []*x509.Certificate
	if chain, err = certs.Parse(raw); err != nil {
		return err
	}
	return chain[0].VerifyHostname(host)
}

// tokenFile finds a token that others can read or guess.
func (d *diagnosis) tokenFile() {
	const check = "token"
	if d.sh.Token == "" {
		return
	}
	before := len(d.findings)
	// A token may come from a variable, too: then there is no file to look at.
	if info, err := os.Stat(d.cfg.TokenFile); d.cfg.TokenFile != "" && err == nil && info.Mode().Perm()&0o037 != 0 {
		d.bad(check, "chmod 600 "+d.cfg.TokenFile, "%s can be read by others (mode %04o)", d.cfg.TokenFile, info.Mode().Perm())
	}
	// Short tokens are accepted, so only this check finds them.
	if len(d.sh.Token) < leastToken {
		d.bad(check, "make one with: openssl rand -hex 32", "the cluster token has %s: it can be guessed",
			shell.Count(len(d.sh.Token), "character"))
	}
	if len(d.findings) == before {
		d.good(check, "there is one")
	}
}

// openFiles finds a limit that a node reaches.
func (d *diagnosis) openFiles() {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		d.bad("open files", "see ulimit -n", "%v", err)
		return
	}
	// Go's runtime raises the soft limit to the hard one.
	if limit.Max < leastFiles {
		d.bad("open files", "set LimitNOFILE=65536 in the unit, or ulimit -n 65536",
			"a process may have %d, the node needs %d", limit.Max, leastFiles)
		return
	}
	d.good("open files", "a process may have %d", limit.Max)
}
