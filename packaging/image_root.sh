#!/bin/sh
# Fills a folder with the root file system of the image: the archive below /usr/local, glibc of this system, certificates of
# authorities, a user. Run by Containerfile in its first stage. Usage: image_root.sh ARCHIVE FOLDER
set -eu
archive=$1
root=$2

mkdir -p "$root/usr/local" "$root/usr/lib" "$root/usr/lib64" "$root/etc/ssl/certs" "$root/var/lib/tandem" "$root/var/cache/tandem" "$root/tmp"
chmod 1777 "$root/tmp"
chown 65532:65532 "$root/var/lib/tandem" "$root/var/cache/tandem"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
tar -xzf "$archive" -C "$root/usr/local" --strip-components=1 --no-same-owner
# What only a login or systemd reads.
rm -rf "$root/usr/local/share/man" "$root/usr/local/share/bash-completion" "$root/usr/local/share/zsh" "$root/usr/local/lib/systemd"

# glibc: what programs and plugins load, and what looks up names.
libraries=$(dirname "$(ldd /bin/sh | sed -n 's/.*=> \(.*libc\.so\.6\).*/\1/p')")
mkdir -p "$root/$libraries"
for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2; do
  cp -L "$libraries/$name" "$root/$libraries/"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/usr/lib64/"
mkdir -p "$root/usr/share/doc/libc6"
if [ -e /usr/share/doc/libc6/copyright ]; then cp /usr/share/doc/libc6/copyright "$root/usr/share/doc/libc6/"; fi

if [ -e /etc/ssl/certs/ca-certificates.crt ]; then cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"; fi
echo 'tandem:x:65532:65532:Tandem:/var/lib/tandem:/sbin/nologin' >"$root/etc/passwd"
echo 'tandem:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
