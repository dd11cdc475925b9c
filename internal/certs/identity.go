package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Why a certificate is refused. Errors of this package wrap one of them, with the details in their text.
var (
	ErrUnknownCA  = errors.New("certificate is not signed by the cluster's CA")
	ErrExpired    = errors.New("certificate has expired or is not valid yet")
	ErrUsage      = errors.New("certificate is not made for this use")
	ErrNoIdentity = errors.New("certificate names no one that ringlog knows")
	ErrNotNode    = errors.New("certificate is a client's, not a node's")
)

// Kind is what a certificate is of.
type Kind string

// The kinds of certificates.
const (
	Node   Kind = "node"
	Client Kind = "client"
)

// Identity is who a certificate is of.
type Identity struct {
	Kind Kind   // Node or Client
	Name string // the node's id, or the client's name
}

// scheme begins the URI of an identity.
const scheme = "ringlog"

// name is the form of a node's id and of a client's name.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// String returns the URI.
func (i Identity) String() string { return scheme + "://" + string(i.Kind) + "/" + i.Name }

// url returns the URI as certificates have it. It fails if the name cannot be one.
func (i Identity) url() (*url.URL, error) {
	if !name.MatchString(i.Name) {
		return nil, fmt.Errorf("%s %q: use up to 64 letters, digits, dots, dashes and underscores", i.Kind, i.Name)
	}
	return &url.URL{Scheme: scheme, Host: string(i.Kind), Path: "/" + i.Name}, nil
}

// IdentityOf returns who a certificate is of. A certificate with two identities is refused: which of them counts would
// depend on who reads it. It does not verify the certificate. Every error is an ErrNoIdentity.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	var found []Identity
	for _, u := range c.URIs {
		// URIs of other systems do not matter.
		if u.Scheme != scheme {
			continue
		}
		// Compared as a whole, so that a port, a query or an escape makes no second form of a name.
		i := Identity{Kind: Kind(u.Host), Name: strings.TrimPrefix(u.Path, "/")}
		known := i.Kind == Node || i.Kind == Client
		if !known || !name.MatchString(i.Name) || u.String() != i.String() {
			return Identity{}, fmt.Errorf("%w: %.200q is neither ringlog://node/ID nor ringlog://client/NAME",
				ErrNoIdentity, u.String())
		}
		found = append(found, i)
	}
	if len(found) != 1 {
		return Identity{}, fmt.Errorf("%w: %d URIs of the form ringlog://node/ID or ringlog://client/NAME, one is needed",
			ErrNoIdentity, len(found))
	}
	return found[0], nil
}

// verify checks that a chain, the leaf first, ends at one of the roots and is made for a use. It returns until when
// that holds.
func verify(chain []*x509.Certificate, roots *x509.CertPool, use x509.ExtKeyUsage, now time.Time) (time.Time, error) {
	if len(chain) == 0 {
		return time.Time{}, fmt.Errorf("%w: there is none", ErrNoIdentity)
	}
	// Certificates between the leaf and the CA come with the leaf.
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", reasonOf(err), err)
	}
	// Every certificate of a path has to be valid; the path that lasts longest counts.
	var until time.Time
	for _, path := range paths {
		ends := path[0].NotAfter
		for _, c := range path {
			if c.NotAfter.Before(ends) {
				ends = c.NotAfter
			}
		}
		if ends.After(until) {
			until = ends
		}
	}
	return until, nil
}

// reasonOf returns which of this package's errors an error of x509 is. Whatever is neither about time nor about use is
// an ErrUnknownCA.
func reasonOf(err error) error {
	invalid, is := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case is && invalid.Reason == x509.Expired:
		return ErrExpired
	case is && invalid.Reason == x509.IncompatibleUsage:
		return ErrUsage
	}
	return ErrUnknownCA
}
