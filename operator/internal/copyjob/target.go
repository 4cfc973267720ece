package copyjob

import (
	"dormouse.dev/dormouse/api/v1alpha1"
)

// authorityFile is the name of the certificate in the bucket's Secret.
const authorityFile = "ca.crt"

// URL is where the archive of a Server's Backup is, as the Job's program is told: in the disk for
// copies, or in the bucket, which several namespaces may share. It is empty for snapshots, which have no
// archive.
func URL(target *v1alpha1.BackupTarget, namespace, server, backup string) string {
	path := server + "/" + backup + ".tar.zst"
	switch {
	case target.Claim != nil:
		return "file://" + claimPath + "/" + path
	case target.Bucket != nil:
		return "s3://" + target.Bucket.Name + "/" + target.Bucket.Prefix + namespace + "/" + path
	}
	return ""
}

// Flags are those with which the program finds the bucket's service. The file with the authority's
// certificate is there only if the Secret has one.
func Flags(target *v1alpha1.BackupTarget) []string {
	if target.Bucket == nil {
		return nil
	}
	flags := []string{"--s3-endpoint=" + target.Bucket.Endpoint}
	if target.Bucket.Region != "" {
		flags = append(flags, "--s3-region="+target.Bucket.Region)
	}
	return append(flags, "--s3-ca-file="+authorityPath+"/"+authorityFile)
}
