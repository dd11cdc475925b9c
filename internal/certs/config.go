package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"
)

// Mode is how far connections have to be secured.
type Mode string

// The modes. A running cluster goes from Off to Require by way of Allow.
const (
	Off Mode = "off" // connections are plain
	// Allow takes plain connections, too, and makes them where the other end has nothing else. It protects nobody from
	// who can change packets, and so make a connection plain.
	Allow   Mode = "allow"
	Require Mode = "require" // plain ones are refused
)

// serverConfig is the configuration of material for whoever calls: a certificate is asked for and need not be given.
// One that is given has to be of the CA. Who it is of is left to the caller, by IdentityOf.
func serverConfig(m *material) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{m.pair},
		ClientCAs:    m.roots,
		ClientAuth:   tls.VerifyClientCertIfGiven,
		NextProtos:   []string{"h2", "http/1.1"},
		// A resumed session would outlive the certificates that it began with.
		SessionTicketsDisabled: true,
	}
}

// ServerConfig is for a port that clients call. Each connection begins with the newest certificates. The same
// configuration may serve for as long as the port is open.
func (s *Store) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().server, nil },
	}
}

// MutualConfig is for one connection between nodes, of either side. TLS itself proves only that the peer has the key of
// its certificate: the caller has to ask NodeOf before it believes or sends anything. So a refusal can say why, where
// TLS has an alert. It has the certificates of this moment, so it must not be kept for another connection.
func (s *Store) MutualConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{s.current.Load().pair},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // NodeOf verifies
		SessionTicketsDisabled: true,
	}
}

// CallConfig is for one call to the HTTP port of another node, which has to have a node's certificate of the CA. By
// which name it was dialled does not count.
func (s *Store) CallConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		Certificates:       []tls.Certificate{s.current.Load().pair},
		NextProtos:         []string{"http/1.1"},
		InsecureSkipVerify: true, // VerifyConnection does
		VerifyConnection: func(c tls.ConnectionState) error {
			_, err := s.NodeOf(c, x509.ExtKeyUsageServerAuth)
			return err
		},
	}
}

// NodeOf returns the id of the node at the other end of a connection, which is used as that. It verifies the
// certificates of the peer against the newest CA. as is what the peer was in it: x509.ExtKeyUsageServerAuth if it was
// dialled. An error is one of this package's, such as ErrUnknownCA or ErrNotNode.
func (s *Store) NodeOf(c tls.ConnectionState, as x509.ExtKeyUsage) (id string, err error) {
	// The newest CA counts, not that with which the connection began: one that was replaced vouches for nobody.
	if _, err := verify(c.PeerCertificates, s.current.Load().roots, as, time.Now()); err != nil {
		return "", err
	}
	i, err := IdentityOf(c.PeerCertificates[0])
	switch {
	case err != nil:
		return "", err
	// A client's certificate is signed by the same CA.
	case i.Kind != Node:
		return "", fmt.Errorf("%w: %s", ErrNotNode, i)
	}
	return i.Name, nil
}

// ClientConfig is for calls to a cluster from files that are named; each may be "". Without CA the system's are
// trusted. A certificate that is renewed is used from the next connection on.
func ClientConfig(files Files) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	// A CA is read once: a client that runs for long has to be restarted when the CA is replaced.
	if files.CA != "" {
		data, err := ReadFile(files.CA)
		if err != nil {
			return nil, fmt.Errorf("CA: %w", err)
		}
		roots, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("CA %s: %w", files.CA, err)
		}
		config.RootCAs = x509.NewCertPool()
		for _, c := range roots {
			config.RootCAs.AddCert(c)
		}
	}
	// Without a certificate of its own the client proves who it is by a token, or not at all.
	if files.Cert == "" && files.Key == "" {
		return config, nil
	}
	// It is read now to report what is wrong with it, and again for each connection.
	pair, err := readPair(files)
	if err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		// An error here would fail the connection, though the certificate before may still do.
		if newer, err := readPair(files); err == nil {
			return newer, nil
		}
		return pair, nil // until the new files can be used
	}
	return config, nil
}

// readPair reads a client's certificate and key. It refuses a certificate that is not valid at this time, so that the
// error names the file and not only an alert.
func readPair(files Files) (*tls.Certificate, error) {
	cert, err := ReadFile(files.Cert)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := ReadKey(files.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	pair, err := parsePair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s do not belong together: %w", files.Cert, files.Key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		return nil, fmt.Errorf("certificate %s: %w: it is valid from %s to %s", files.Cert, ErrExpired,
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339), pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &pair, nil
}

// recordHandshake is the first byte of every connection of TLS, and of no other protocol that is spoken here.
const recordHandshake = 0x16

// Peek waits for the first byte of an accepted connection and reports whether TLS begins with it. The connection that
// it returns still has that byte. The caller sets the deadline. After an error the caller closes the connection.
func Peek(c net.Conn) (peeked net.Conn, isTLS bool, err error) {
	first := make([]byte, 1)
	if _, err := c.Read(first); err != nil {
		return nil, false, err
	}
	return &peekedConn{Conn: c, first: first}, first[0] == recordHandshake, nil
}

// peekedConn returns the byte that was read ahead.
type peekedConn struct {
	net.Conn
	first []byte // until it is read; used by the reader alone
}

// NetConn returns the connection below, as that of tls.Conn does.
func (c *peekedConn) NetConn() net.Conn { return c.Conn }

// Read implements net.Conn.
func (c *peekedConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	// The byte alone: a read of the connection might wait, though there is something to return.
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}
