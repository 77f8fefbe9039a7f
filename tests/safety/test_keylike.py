"""What looks like a key, and what only looks a little like one. All values are made up."""

from __future__ import annotations

import pytest

from genericagent.safety.keylike import key_in

A, B = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY", "Zq8Xw7Cv6Bn5Mm4Ll3Kk2Jj1Hh0Gg9Ff"
KEYS = [
    # what vendors give
    f"whsec_{A}", f"sk_live_{A}", f"sk-ant-api03-{A}", f"sk-proj-{A}{B}", f"sk-{A}", f"ghp_{A}1234", f"github_pat_{A}_{B}", f"glpat-{A[:20]}",
    f"xoxb-123456789012-{A[:12]}", "AKIAABCDEFGHIJKLMNOP", "LTAI5tAbCdEfGhIjKlMnOpQr", "AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE",
    f"hvs.{A}", f"glsa_{A}_0a1b2c3d", f"dckr_pat_{A[:27]}", "dapi0123456789abcdef0123456789abcdef", f"AIza{A}abc", f"hf_{A}ab", f"npm_{A}abcd",
    "-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----", "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N", f"SG.{A[:22]}.{A}{B[:11]}",
    f"https://discord.com/api/webhooks/123456789012345678/{A}{B}", f"https://hooks.slack.com/services/T01AB2CD3/B04EF5GH6/{A[:24]}",
    "https://admin:Tr0ub4dor@db.local:8443/x", "postgres://shop:s3cretpw@db.local/app", "redis://:h8Kq2mZx@cache:6379/0",
    # what something is called by
    f"accessToken = '{A}'", f'"clientSecret": "{A}"', "dbPassword: Kestrel7!", f"AccountKey={A}{B}==", "DB_PASS=Kestrel7", "pass: Kestrel7",
    "pw=Kestrel7", "pwd = 'hunter2'", "密码:Xk29dkslq", "密码：kestrel-summer", "口令 是 Xk29dkslq", f"令牌：{A}", f"密钥为{A}", "password - Kestrel7",
    "password is kestrel7summer", "the wifi password is blueHorse42", "| password | Kestrel7 |", f"| API key | {A} |", "| 密码 | Xk29dkslq |",
    "password: hunter2-Summer", "passwd=4711", "PASSWORD=correct-horse!battery", f"api_key = {A}",
    "api_key = da39a3ee5e6b4b0d3255bfef95601890afd80709",
    f"Authorization: Bearer {A}", "the API token is 8fQ2mZ7xK9vL3nB5tR1w", f"export OPENAI_API_KEY={A}", f"secret_key_base: {A}{B}",
    f"AWS_SECRET_ACCESS_KEY={A}/{B[:7]}",
    "passphrase: fourWords2", f"token={A}", f"x-api-key: {A}", f"client_secret={A}", "root_password: 'S3cure#pass'", "MYSQL_ROOT_PASSWORD=Kestrel7",
    "login: jo / password: Kestrel7", "sudo password: 12345678", f"refreshToken: {A}", "auth_token: 0123456789abcdef0123456789abcdef",
    "kubectl config set-credentials jo --password=Kestrel7", "mysql -u root --password Kestrel7", "password:Kestrel7", "用户名 jo，密码 Xk29dkslq",
    "privateKey: 0x4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318",
    "whsec_"+B,"sk-0123456789abcdef0123456789abcdef","sk-or-v1-"+"ab12"*16,"SecretAccessKey: "+A + B[:8],'"password" : "kestrel9"',"smtpPassword=tok4tok","userPwd: 'abc9!'","jwtSecret = '"+A + "'","DB_PASSWORD: kestrel9","- 密码: abc12345","登录口令=98765432","Wi-Fi password: kestrel-9","PGPASSWORD=kestrel9 psql","pw: 9911","*password*: kestrel9","**Password:** kestrel9","`password`: `kestrel9`","password => 'kestrel9'","the admin password is: kestrel9","http://jo:kestrel9@nas.local/","mongodb+srv://shop:aB3dE5@c0.example.net","SharedAccessKey="+A + "=","ConnectionString: Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey="+A,"bot token: 123456789:"+A + "abc","personal access token "+A,"X-Auth-Token: "+A,"| root | password: kestrel9 |","pin code; passcode: 4711","token: "+"ab12cd34"*4, "my password is Kestrel#","aws_secret_access_key = "+A + "/"+B[:7],"密码为 kestrel9","密码是：kestrel9","apiKey:"+A,
    # behind an option or a name, in other languages, and of more vendors
    "curl -u admin:s3cretPW1 http://x", "curl -s --user 'jo:Kestrel7' https://x", "mysql -u root -pS3cretPw shop", "sshpass -p hunter2x ssh h",
    "machine h login jo password Kestrel7", "machine h\n  login jo\n  password Kestrel7", "login admin / password Zk9!xx2",
    "passwort: geheim123", "Kennwort = geheim123", "contraseña: secreto123", "mot de passe : secret123", "senha: segredo1", "пароль: kestrel9",
    f"ATATT3{A}", f"figd_{A}-x", f"ntn_{A}", f"sntrys_{A}", "pat-na1-123e4567-e89b-12d3-a456-426614174000", f"EAAC{A}", f"secret_{A}{B}",
    f"sq0csp-{A}", "key-0123456789abcdef0123456789abcdef",
]  # fmt: skip
HARMLESS = [
    # code that asks for a key, names it, or says where it is
    "getpass.getpass('p1')", "pw = getpass.getpass('Password 1: ')", "config.get_api_key(1)", "api_key = os.environ['OPENAI_API_KEY']",
    "token = os.getenv('GH_TOKEN2')", "password = input('password 2: ')", "key: env:OPENAI_API_KEY", "api_key = $OPENAI_API_KEY",
    "token=${GH_TOKEN}",
    "apiKey: process.env.API_KEY_2", "password = settings.DB_PASSWORD", "secret = vault.read('kv/app1')", "token: !secret ha_token1",
    "password: see the keyring entry",
    "the API key is in ~/.config/app/key.toml", "secret store: vault kv get secret/data/app", "auth_token = load_token(path)",
    "keys = sorted(d1.keys())",
    "password = credentials[1]", "client_secret=<client-secret>", "DB_PASS=<your password>", "password: ********", "api_key: xxxxxxxxxxxxxxxx",
    "password = None",
    "password: string", "token: str | None = None", "pass: 42 tests passed", "pass the key1 argument", "api key: ask jo", "密码在钥匙串里", "密码：见钥匙串",
    "令牌存放在 ~/.netrc",
    "密码是用户自己设的", "口令：每月更换一次", "| password | in the keyring |", "| name | key | value |", "password - see the wiki",
    "password is stored in the keyring",
    "password is required", "the password is wrong", "pass: yes", "pwd: /home/u/shop", "echo $PWD; pwd", "TOKEN_FILE=/run/secrets/token1",
    # addresses with places for a password
    "postgres://user:pass@host", "postgres://user:password@localhost:5432/app", "postgres://${USER}:${PASS}@db/app",
    "https://user:<password>@example.com",
    "redis://:***@cache:6379/0", "mysql://root:$DB_PASS@db", "amqp://guest:guest@localhost", "postgres://user:{password}@host/db",
    "ssh://git@example.org:22/a.git",
    "https://example.com/a/b?page=2", "git@example.org:shop/app1.git", "http://localhost:8080/@me",
    # keys of other kinds
    "cache key: user:42", "S3 key photos/2024/a.jpg", "primary key: 550e8400-e29b-41d4-a716-446655440000", "press the key combination Ctrl-Shift",
    "sort key: created_at_2",
    "sk-learn-contrib-imbalanced-0.12", "pip install sk-learn-extensions-2024", "Tokenizer: o200k_base", "token count: 120000", "max_tokens: 128000",
    "max_tokens=4096",
    "foreign key: orders_2024.customer_id", "ssh key: ~/.ssh/id_ed25519", "SHA256 key fingerprint: SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDRzlsqvYe4Ea8sLR4",
    "keyboard: de-latin1-nodeadkeys",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1nbO4Ff0Xo2Y0b2p0r8VbqYH1pM5cS1n0dY5k4Qx7L jo@box",
    # hashes, ids, paths, pictures
    "fixed in commit 3f786850e387550fdab836ed7e6dc881de23001b", "row id 550e8400-e29b-41d4-a716-446655440000",
    "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "see /srv/app/releases/20240501T101112/lib/libtoken2.so",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4", "etag: 33a64df551425fcc55e4d42a148795d9f25f89d4",
    "image: registry.example.org/shop/web@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "session key: 20240501-101112-a1b2c3",
    "key findings: Q3-2024 was slow", "the secret of the till: cp1252", "token bucket: 100/s", "credentials: see 1Password",
    "the pass opens 2024-05-01", "PASS: test_login2", "pass: 2024-05-01", "password: version 2",
    "password_hash = bcrypt.hashpw(pw, salt)","if token == expected_token1:","token = tokens[0]","self.token = token","api_key=args.api_key","--api-key $KEY1","- key: value1","Keys: Ctrl+C, Ctrl+V","key=lambda x: x[1]","dict key 'a1b2c3'","password: Optional[str] = None","password=self._password1","PASSWORD_MIN_LENGTH = 12","pass_rate: 98.5","pass_rate=98%","passed: 120","secrets: inherit","secretName: shop-tls-2024","tokens: 4096","token_limit=200000","num_tokens: 12345","pwd -P","cd $(pwd)/x1","passport no. is with Ana","key: photos/2024/a.jpg","object key = backups/2024-05-01/db1.sql.gz","Redis key shop:cart:42:items","ssh-keygen -t ed25519","gpg --recv-keys 0x1234ABCD1234ABCD","public key: ssh-rsa AAAAB3","api key in 1Password","密码管理器：1Password","密钥放在 ~/.config/app1.toml","令牌桶大小：100","口令见第3页","password: {{ vault_db_password }}","password: %(db_pass1)s","password=#{ENV['X1']}","Authorization: Bearer <token>","Authorization: Bearer $TOKEN1","auth: token","curl -H 'X-Api-Key: YOUR_KEY_1'","jdbc:postgresql://localhost:5432/shop","http://[::1]:8080/@x","pass: ok","PASS [0.031s]","pass - 3 of 4","pass: 1200 fail: 3","bypass: v2","md5 of key file: d41d8cd98f00b204e9800998ecf8427e","key id: 550e8400-e29b-41d4-a716-446655440000","session token expires after 24h","access token lifetime: 15min","password length: 12","password - at least 12 characters","password is 12 characters long","sk-toggleable__content-arrow1","sk-estimator-doc-link",
    "cache key: user:42:profile:v2:2024-01", "Redis key: shop:cart:42:items:2024", "curl -u $USER:$PASS1 https://x", "curl -u jo:<password1> http://x",
    "curl -u jo https://x:8443/a", "curl --user-agent Mozilla/5.0:x2 https://x", "mysql -u root -p shop1", "mysqldump shop && mkdir -p /srv/a1",
    "mysql -P3307 shop", "sshpass -p $PW1 ssh h", "sshpass -e ssh h1", "docker run -u 1000:1000 web2", "Passwort: siehe Tresor",
    "Passwortmanager: KeePassXC-2.7", "login form / password field", "user jo, password in the keyring", "mot de passe : voir le coffre",
]  # fmt: skip


@pytest.mark.parametrize("text", KEYS)
def test_a_key_is_found_wherever_it_stands(text: str) -> None:
    for line in (text, f"- {text}", f"the shop's access ({text})", f"a\n{text}\nb"):
        found = key_in(line)
        assert found and len(found) <= 9, line


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_key_is_let_through(text: str) -> None:
    for line in (text, f"- {text}", f"a\n{text}\nb"):
        assert key_in(line) == "", line
