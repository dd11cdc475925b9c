package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxFile bounds what is read of a file, in bytes: a bundle of all public CAs is a quarter of it.
const maxFile = 1 << 20

// Files are where the certificates of a node or a client are, each in PEM.
type Files struct {
	Cert string // its own certificate, followed by those between it and the CA
	Key  string // readable by its owner, and perhaps its group, alone
	CA   string // the certificates of the CAs that sign nodes and clients
}

// ReadKey reads a private key's file. It refuses one that others can read.
func ReadKey(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	// A group may read it, as it has to where another user places the files.
	if mode := info.Mode().Perm(); mode&0o037 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 %s", file, mode, file)
	}
	return ReadFile(file)
}

// ReadFile reads a small file.
func ReadFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes: it is no file of certificates", file, maxFile)
	}
	return data, err
}

// Parse returns all certificates of a PEM file. Blocks of other types are left out, such as a key in the same file.
func Parse(data []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		data = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(list)+1, err)
		}
		list = append(list, c)
	}
	// A file of another kind has no block at all.
	if len(list) == 0 {
		return nil, errors.New("there is no certificate in PEM in it")
	}
	return list, nil
}

// parsePair reads a certificate and its key, which have to belong together.
func parsePair(cert, key []byte) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return pair, err
	}
	// Set explicitly: whether the library does depends on a setting.
	pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0])
	return pair, err
}

// material is what the files had at one time; it never changes.
type material struct {
	cert, key, ca []byte          // of the files
	pair          tls.Certificate // cert and key
	roots         *x509.CertPool  // of ca
	until         time.Time       // the certificate and its CA are both valid until then
	server        *tls.Config     // serverConfig of it, made once
}

// Store holds the certificates of files, and takes in new ones. It is safe for concurrent use. Readers take the
// material that is current and never wait for a Reload.
type Store struct {
	files   Files                         // do not change
	fits    func(*x509.Certificate) error // refuses a certificate of somebody else; as in Open
	current atomic.Pointer[material]      // never nil

	mu       sync.Mutex // guards what follows, and makes one Reload follow the other
	problem  error      // why the newest files are not used; nil if they are
	failures uint64     // files that were not used
}

// ForNode accepts the certificate of one node alone. It is for Open: a node with another's certificate would be taken
// for that one.
func ForNode(id string) func(*x509.Certificate) error {
	want := Identity{Node, id}
	return func(c *x509.Certificate) error {
		i, err := IdentityOf(c)
		if err == nil && i != want {
			err = fmt.Errorf("it is of %s and not of %s", i, want)
		}
		if err != nil {
			return fmt.Errorf("%w: make one with ringlog cert node %s", err, id)
		}
		return nil
	}
}

// Open reads the files. Every error names the file. fits says whether a certificate is of the right one. Files that
// cannot be used leave no store; after that, see Reload.
func Open(files Files, fits func(*x509.Certificate) error) (*Store, error) {
	s := &Store{files: files, fits: fits}
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	s.current.Store(m)
	return s, nil
}

// Reload reads the files again and reports whether they have changed. Connections that are open keep what they began
// with. Files that cannot be used leave the store as it is; State has the reason until they can be.
func (s *Store) Reload() (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.read()
	if err != nil {
		// Files that stay as bad as they are count once.
		if s.problem == nil || s.problem.Error() != err.Error() {
			s.failures++
		}
		s.problem = err
		return false, err
	}
	// Files that are good again end a problem, even if they are those in use.
	s.problem = nil
	// By content: a file that is touched or written again with the same bytes is no change.
	old := s.current.Load()
	if bytes.Equal(m.cert, old.cert) && bytes.Equal(m.key, old.key) && bytes.Equal(m.ca, old.ca) {
		return false, nil
	}
	s.current.Store(m)
	return true, nil
}

// State is how a store is.
type State struct {
	Until    time.Time // the certificate in use, and the CA that signed it, are valid until then
	Problem  error     // why the newest files are not used; nil if they are
	Failures uint64    // how often new files could not be used
}

// State returns how the store is.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Until: s.current.Load().until, Problem: s.problem, Failures: s.failures}
}

// read reads and checks the files. The three files are replaced one by one, so it may see a new certificate with an old
// key. That is an error, and the next call may succeed.
func (s *Store) read() (*material, error) {
	// All files first, then what is in them.
	m := &material{}
	var err error
	if m.cert, err = ReadFile(s.files.Cert); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if m.key, err = ReadKey(s.files.Key); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if m.ca, err = ReadFile(s.files.CA); err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	roots, err := Parse(m.ca)
	if err != nil {
		return nil, fmt.Errorf("CA %s: %w", s.files.CA, err)
	}
	// A certificate that is no CA would be trusted by nobody, and is most likely the wrong file.
	m.roots = x509.NewCertPool()
	for _, c := range roots {
		if !c.IsCA {
			return nil, fmt.Errorf("CA %s: the certificate of %q in it is not of a CA", s.files.CA, c.Subject.CommonName)
		}
		m.roots.AddCert(c)
	}
	// The certificate has to belong to the key and to this node or client.
	chain, err := Parse(m.cert)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.files.Cert, err)
	}
	if m.pair, err = parsePair(m.cert, m.key); err != nil {
		return nil, fmt.Errorf("certificate %s and key %s do not belong together: %w", s.files.Cert, s.files.Key, err)
	}
	if err := s.fits(m.pair.Leaf); err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.files.Cert, err)
	}
	// A node both dials and answers.
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if i, err := IdentityOf(m.pair.Leaf); err != nil || i.Kind == Node {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	// As another node would verify it: what is refused here would be refused there.
	for _, use := range uses {
		if m.until, err = verify(chain, m.roots, use, time.Now()); err != nil {
			return nil, fmt.Errorf("certificate %s, with CA %s: %w", s.files.Cert, s.files.CA, err)
		}
	}
	m.server = serverConfig(m)
	return m, nil
}
