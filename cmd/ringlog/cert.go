package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/certs"
)

// The folder has one CA, ca.pem and ca-key.pem, and a pair of files for each certificate that it has signed. The
// identity is in the certificate, so that nodes know each other and their clients by it; names and addresses are
// what callers check.

// certCommand is cert: a private CA and its certificates, so that a cluster with TLS needs no other tool. No cluster is
// asked.
func certCommand(sh *shell.Shell) *cli.Command {
	dir := &cli.StringFlag{Name: "dir", Value: ".",
		Usage: "`DIR` of the CA's files and the new ones; it is made if need be"}
	valid := func(age string) cli.Flag {
		return &cli.StringFlag{Name: "valid", Value: age, Usage: "`AGE` at which the certificate expires, such as 90d"}
	}
	return &cli.Command{
		Name: "cert", Usage: "make certificates for TLS",
		UsageText: shell.Examples("ringlog cert ca", "ringlog cert node n1 --host n1.lan,10.0.0.1",
			"ringlog cert client trainer"),
		Description: "Keep ca-key.pem away from the nodes: whoever has it can be any node. Files are never overwritten.",
		Subcommands: []*cli.Command{
			{Name: "ca", Usage: "make a CA: ca.pem and ca-key.pem", UsageText: shell.Examples("ringlog cert ca --dir tls"),
				Flags: []cli.Flag{dir, valid("3650d"),
					&cli.StringFlag{Name: "name", Value: "ringlog", Usage: "`NAME` of the CA, for people"}},
				Action: shell.NoArgs(func(c *cli.Context) error { return makeCA(sh, c) })},
			{Name: "node", Usage: "make the certificate of a node: node-ID.pem and node-ID-key.pem", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog cert node n1 --host n1.lan,10.0.0.1 --dir tls"),
				Flags: []cli.Flag{dir, valid("365d"), &cli.StringSliceFlag{Name: "host",
					Usage: "comma-separated `HOST`s, names and addresses, by which clients reach the node"}},
				Action: shell.Args(1, "the ID of a node", func(c *cli.Context) error {
					return issueCert(sh, c, certs.Identity{Kind: certs.Node, Name: c.Args().First()})
				})},
			{Name: "client", Usage: "make the certificate of a client: client-NAME.pem and client-NAME-key.pem",
				ArgsUsage: "NAME", UsageText: shell.Examples("ringlog cert client trainer --dir tls"),
				Flags: []cli.Flag{dir, valid("365d")},
				Action: shell.Args(1, "the NAME of a client", func(c *cli.Context) error {
					return issueCert(sh, c, certs.Identity{Kind: certs.Client, Name: c.Args().First()})
				})},
			{Name: "show", Usage: "print the certificates of a file", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog cert show tls/ca.pem"),
				Action:    shell.Args(1, "a FILE", func(c *cli.Context) error { return showCerts(sh, c.Args().First()) })},
		},
	}
}

// makeCA makes a CA and writes its files. The key is in ca-key.pem, which issueCert reads again.
func makeCA(sh *shell.Shell, c *cli.Context) error {
	valid, err := shell.ParseAge("valid", c.String("valid"))
	if err != nil {
		return err
	}
	ca, err := certs.NewCA(c.String("name"), valid)
	if err != nil {
		return err
	}
	return writePair(sh, c.String("dir"), "ca", ca.Pair)
}

// issueCert makes a certificate, which the CA of the folder signs, and writes its files.
func issueCert(sh *shell.Shell, c *cli.Context, who certs.Identity) error {
	valid, err := shell.ParseAge("valid", c.String("valid"))
	if err != nil {
		return err
	}
	var hosts []string
	// The flag may be repeated, and each may have several hosts.
	for _, list := range c.StringSlice("host") {
		hosts = append(hosts, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	// Nodes and clients check the name in the address that they dial. A client's certificate needs none.
	if who.Kind == certs.Node && len(hosts) == 0 {
		return shell.Usagef("--host is required: the names and addresses by which clients reach %s", who.Name)
	}
	ca, err := readCA(c.String("dir"))
	if err != nil {
		return err
	}
	pair, err := ca.Issue(certs.Request{Identity: who, Hosts: hosts, Valid: valid})
	if err != nil {
		return shell.Usagef("%w", err)
	}
	return writePair(sh, c.String("dir"), string(who.Kind)+"-"+who.Name, pair)
}

// readCA reads the CA of a folder.
func readCA(dir string) (*certs.CA, error) {
	file := filepath.Join(dir, "ca.pem")
	// A folder without a CA is the usual mistake, so its error says how to make one.
	cert, err := certs.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, shell.Usagef("%w: make a CA with ringlog cert ca --dir %s", err, dir)
	}
	if err != nil {
		return nil, err
	}
	// ReadKey refuses a key that others can read.
	key, err := certs.ReadKey(filepath.Join(dir, "ca-key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := certs.ParseCA(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return ca, nil
}

// writePair writes a certificate and its key, neither over a file that exists.
func writePair(sh *shell.Shell, dir, name string, pair certs.Pair) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// The certificate may be read by everybody, the key by this user alone.
	cert, key := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	if err := writeNew(cert, pair.Cert, 0o644); err != nil {
		return err
	}
	// Without its key a certificate is of no use.
	if err := writeNew(key, pair.Key, 0o600); err != nil {
		return errors.Join(err, os.Remove(cert))
	}
	// With -o json the names of the files come before what the certificate says.
	c := certOf(pair.Leaf)
	return sh.Emit(struct {
		Cert string `json:"cert"`
		Key  string `json:"key"`
		shownCert
	}{cert, key, c}, func() error {
		_, err := fmt.Fprintf(sh.Out, "wrote %s and %s: %s\n", cert, key, c)
		return err
	})
}

// writeNew writes a file that must not exist, and has it on the disk.
func writeNew(file string, data []byte, mode os.FileMode) error {
	// O_EXCL has the kernel refuse a file that exists, also one that another command makes at this moment.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return shell.Usagef("%s exists: move it away, or name another --dir", file)
	}
	if err != nil {
		return err
	}
	// A file that could not be written whole is removed, so that the command can be repeated.
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// shownCert is a certificate as it is printed.
type shownCert struct {
	Of      string    `json:"of"` // the identity, the name of a CA, or the subject of a foreign one
	CA      bool      `json:"ca"`
	Hosts   []string  `json:"hosts,omitempty"` // names and addresses
	From    time.Time `json:"not_before"`
	Until   time.Time `json:"not_after"`
	Issuer  string    `json:"issuer"`
	Problem string    `json:"problem,omitempty"` // why it is of no use; "" if nothing is wrong
}

// certOf reads what is printed of a certificate.
func certOf(c *x509.Certificate) shownCert {
	s := shownCert{CA: c.IsCA, Hosts: c.DNSNames, From: c.NotBefore.UTC(), Until: c.NotAfter.UTC(),
		Of: c.Subject.String(), Issuer: c.Issuer.String()}
	// crypto/x509 keeps names and addresses apart.
	for _, ip := range c.IPAddresses {
		s.Hosts = append(s.Hosts, ip.String())
	}
	// A certificate of another CA may have no identity of this program's, which is a problem for all its uses here.
	if !c.IsCA {
		who, err := certs.IdentityOf(c)
		if err == nil {
			s.Of = who.String()
		} else {
			s.Problem = err.Error()
		}
	}
	// The time counts more than the identity: an expired certificate is refused first.
	switch now := time.Now(); {
	case now.After(s.Until):
		s.Problem = "it has expired"
	case now.Before(s.From):
		s.Problem = "it is not valid yet"
	}
	return s
}

// String describes a certificate in a line.
func (s shownCert) String() string {
	text := s.Of
	// A CA has no hosts, and a client need not have any.
	if s.CA {
		text = "CA " + s.Of
	}
	if len(s.Hosts) > 0 {
		text += " at " + strings.Join(s.Hosts, ", ")
	}
	text += ", valid until " + shell.Time(s.Until)
	if s.Problem != "" {
		text += "; " + s.Problem
	}
	return text
}

// showCerts prints the certificates of a file.
func showCerts(sh *shell.Shell, file string) error {
	data, err := certs.ReadFile(file)
	if err != nil {
		return err
	}
	// Parse passes over what is no certificate.
	list, err := certs.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, c := range list {
		shown := certOf(c)
		if err := sh.Emit(shown, func() error { return sh.Print(shown.String()) }); err != nil {
			return err
		}
	}
	return nil
}
