package offline

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/snapshots"
)

// An encrypted backup is a file of age (age-encryption.org/v1) that holds a backup: the program age opens it as well.
// It is encrypted here and not by the node, so that the node needs no keys, and while it arrives: it is never clear on
// the disk.

// ageOpening is what a file of age begins with.
const ageOpening = "age-encryption.org/"

// maxIdentity bounds the file of an identity, in bytes.
const maxIdentity = 1 << 20

// identityFlag is --identity of the verbs that read a backup.
func identityFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "identity",
		Usage: "open an encrypted backup with the identity in `FILE`, as of ringlog snapshot keygen (repeatable)"}
}

// parseRecipients reads the recipients of --recipient. None of the texts is no encryption.
func parseRecipients(texts []string) ([]age.Recipient, error) {
	var recipients []age.Recipient
	for _, text := range texts {
		// An identity must not be shown, and is no recipient.
		if strings.Contains(strings.ToUpper(text), "SECRET-KEY") {
			return nil, shell.Usagef("--recipient: that is an identity, which opens backups: keep it secret, and name its " +
				"recipient, which its file has as a comment")
		}
		found, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, shell.Usagef("--recipient %.100q is none, such as age1…: ringlog snapshot keygen makes one", text)
		}
		recipients = append(recipients, found...)
	}
	return recipients, nil
}

// readIdentities reads the identities in files.
func readIdentities(files []string) ([]age.Identity, error) {
	var identities []age.Identity
	for _, name := range files {
		// One file may have several identities, and each of them may be the one that opens the backup.
		found, err := readIdentity(name)
		if err != nil {
			return nil, shell.Usagef("--identity: %w", err)
		}
		identities = append(identities, found...)
	}
	return identities, nil
}

// readIdentity reads the identities in a file. Its errors do not show what is in it.
func readIdentity(name string) ([]age.Identity, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The mode is that of the file that is open, which nobody can replace any more.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Something else than a file, such as a pipe of a password manager, has no mode that would matter.
	if mode := info.Mode().Perm(); info.Mode().IsRegular() && mode&0o037 != 0 {
		return nil, fmt.Errorf("%s can be read or written by others (mode %04o): chmod 600 %[1]s", name, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIdentity))
	if err != nil {
		return nil, err
	}
	// The error of the parser is not shown: it may quote the file.
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	switch {
	case err == nil:
		return identities, nil
	case isEncrypted(text):
		return nil, fmt.Errorf("%s is encrypted itself: open it first, with age --decrypt", name)
	}
	return nil, fmt.Errorf("%s holds no identity, which begins with AGE-SECRET-KEY-", name)
}

// isEncrypted reports whether a file that begins like that is one of age.
func isEncrypted(start []byte) bool {
	return bytes.HasPrefix(start, []byte(ageOpening)) || bytes.HasPrefix(start, []byte(armor.Header))
}

// openBackup returns what is in a file that may be encrypted, as it is read.
func openBackup(sh *shell.Shell, f *os.File, identities []age.Identity) (io.Reader, error) {
	// The beginning shows whether a file is encrypted, whatever its name is.
	in := bufio.NewReaderSize(f, 256<<10)
	start, err := in.Peek(len(armor.Header))
	// A file that is shorter is no backup, which is found when it is read.
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case !isEncrypted(start):
		if len(identities) > 0 {
			sh.Say("warning: %s is not encrypted, so --identity does nothing: anybody can have made it", f.Name())
		}
		return in, nil
	case len(identities) == 0:
		return nil, shell.Usagef("%s is encrypted: name the file of an identity that it was encrypted to, "+
			"with --identity FILE", f.Name())
	}
	// The text form of age is decoded first.
	var sealed io.Reader = in
	if bytes.HasPrefix(start, []byte(armor.Header)) {
		sealed = armor.NewReader(in)
	}
	clear, err := age.Decrypt(sealed, identities...)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, shell.Usagef("%s was encrypted to others: no identity of --identity opens it", f.Name())
	}
	if err != nil {
		return nil, sealedError(f.Name(), err)
	}
	return sealedReader{f.Name(), clear}, nil
}

// sealedReader reads what is in an encrypted file. Its errors say that the file is damaged, if it is.
type sealedReader struct {
	name string    // for errors
	r    io.Reader // what age has decrypted; it checks each chunk before it returns it
}

func (s sealedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		err = sealedError(s.name, err)
	}
	return n, err
}

// sealedError is the error for a file that cannot be read, or whose bytes are not those that were encrypted.
func sealedError(name string, err error) error {
	// What the operating system reports is no damage of the backup.
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return err
	}
	return fmt.Errorf("%s: %w: it is cut, or not as it was encrypted: %v", name, snapshots.ErrCorrupt, err)
}

// saveSealed encrypts a backup into a file as it arrives, and verifies it on the way: who encrypts to others could not
// open the file again. That the disk has what was written is compared by its digest.
func saveSealed(from io.Reader, to *os.File, recipients []age.Recipient) (snapshots.Meta, error) {
	// What is written goes to the file and into the digest.
	digest := sha256.New()
	sealed, err := age.Encrypt(io.MultiWriter(to, digest), recipients...)
	if err != nil {
		return snapshots.Meta{}, shell.Usagef("--recipient: %w", err)
	}
	// Verify reads what arrives. What it has read is encrypted on the way.
	meta, err := snapshots.Verify(io.TeeReader(from, sealed))
	if err != nil {
		return meta, fmt.Errorf("the backup does not verify: %w", err)
	}
	// age writes its last chunk on Close.
	if err := sealed.Close(); err != nil {
		return meta, err
	}
	// The file is read again to its end.
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return meta, err
	}
	stored := sha256.New()
	if _, err := io.Copy(stored, to); err != nil {
		return meta, err
	}
	if !bytes.Equal(stored.Sum(nil), digest.Sum(nil)) {
		return meta, fmt.Errorf("%s has other bytes than were written to it", to.Name())
	}
	return meta, nil
}

// keygenCommand is snapshot keygen.
func keygenCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "keygen", Usage: "make an identity that opens encrypted backups, and print its recipient", ArgsUsage: "FILE",
		UsageText: shell.Examples("ringlog snapshot keygen backup-identity"),
		Description: "FILE opens every backup that is encrypted to the recipient. Keep it where the backups are not; the " +
			"recipient is no\nsecret. Both are those of age (age-keygen, age1…).",
		Action: shell.Args(1, "the file to write", func(c *cli.Context) error {
			return makeIdentity(sh, c.Args().First())
		}),
	}
}

// makeIdentity writes an identity, and prints its recipient.
func makeIdentity(sh *shell.Shell, file string) error {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	// A file that exists may be the only one that opens some backup.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return shell.Usagef("%w", err)
	}
	// The file has the form of age-keygen: whoever has it finds the recipient in it.
	recipient := identity.Recipient().String()
	_, err = fmt.Fprintf(f, "# recipient: %s\n%s\n", recipient, identity)
	// Once the recipient is printed, backups may be encrypted to it: the identity must be on the disk before.
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	if sh.JSON {
		return sh.PrintLine(map[string]string{"recipient": recipient})
	}
	_, err = fmt.Fprintln(sh.Out, recipient) // not wrapped
	return err
}
