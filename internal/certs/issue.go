package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// early is how long before its making a certificate is valid already, as clocks differ.
const early = 5 * time.Minute

// Pair is a certificate and its key, each in PEM.
type Pair struct {
	Cert, Key []byte
	Leaf      *x509.Certificate // Cert, parsed
}

// CA signs certificates.
type CA struct {
	Pair
	signer crypto.Signer // with the key of the pair
}

// NewCA makes a CA that is valid for that long. It signs no other CA.
func NewCA(commonName string, valid time.Duration) (*CA, error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: commonName},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:     true, MaxPathLenZero: true, BasicConstraintsValid: true,
	}
	pair, signer, err := sign(template, valid, nil)
	if err != nil {
		return nil, fmt.Errorf("make a CA: %w", err)
	}
	return &CA{pair, signer}, nil
}

// ParseCA reads a CA from the PEM of its certificate and key.
func ParseCA(cert, key []byte) (*CA, error) {
	pair, err := parsePair(cert, key)
	if err != nil {
		return nil, err
	}
	// Any key that signs will do, also of a CA that ringlog has not made.
	signer, can := pair.PrivateKey.(crypto.Signer)
	if !pair.Leaf.IsCA || !can {
		return nil, errors.New("the certificate is not of a CA: make one with ringlog cert ca")
	}
	return &CA{Pair{cert, key, pair.Leaf}, signer}, nil
}

// Request is what a certificate is to be of.
type Request struct {
	Identity
	Hosts []string      // names and addresses by which a node is reached; none for a client
	Valid time.Duration // from now on
}

// Issue makes a certificate. One that would outlast the CA is refused: it would fail before its own end.
func (ca *CA) Issue(r Request) (Pair, error) {
	// A name that is no identity is refused before anything is signed.
	uri, err := r.url()
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.Name},
		KeyUsage: x509.KeyUsageDigitalSignature,
		// A node dials others as well.
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri},
	}
	// Clients dial a node by these names.
	if r.Kind == Node {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		if len(r.Hosts) == 0 {
			return Pair{}, errors.New("a node's certificate needs the names and addresses at which clients reach it")
		}
	}
	// Each host is an address or a name; what is neither cannot be dialled.
	for _, host := range r.Hosts {
		switch ip := net.ParseIP(strings.Trim(host, "[]")); {
		case ip != nil && ip.IsUnspecified():
			return Pair{}, fmt.Errorf("host %q: nobody can dial that address", host)
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case len(host) > 253 || !hostName.MatchString(host):
			return Pair{}, fmt.Errorf("host %q is neither a name nor an address; it has no port", host)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	pair, _, err := sign(template, r.Valid, ca)
	if err != nil {
		return Pair{}, fmt.Errorf("make a certificate of %s: %w", r.Identity, err)
	}
	return pair, nil
}

// hostName is a DNS name, perhaps with a wildcard in front.
var hostName = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*` +
	`[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// sign makes a key and a certificate of it, signed by ca, or by itself without one.
func sign(template *x509.Certificate, valid time.Duration, ca *CA) (Pair, crypto.Signer, error) {
	// Certificates have whole seconds.
	now := time.Now().Truncate(time.Second)
	if valid <= 0 {
		return Pair{}, nil, fmt.Errorf("it would be valid for %s", valid)
	}
	template.NotBefore, template.NotAfter = now.Add(-early), now.Add(valid)
	// The key is made here and leaves only in the pair.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, nil, err
	}
	// Without a CA the certificate is its own parent.
	parent, signer := template, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.signer
		if template.NotAfter.After(parent.NotAfter) {
			return Pair{}, nil, fmt.Errorf("it would be valid until %s, and its CA is until %s: ask for less, or make a new CA",
				template.NotAfter.UTC().Format(time.DateOnly), parent.NotAfter.UTC().Format(time.DateOnly))
		}
	}
	// Without a serial number in the template the library draws one.
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, nil, err
	}
	// Parsed again, since the template lacks what signing has added.
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, nil, err
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		Leaf: leaf,
	}, key, nil
}
